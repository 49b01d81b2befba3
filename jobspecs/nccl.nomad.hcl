# One rank per allocation, without a launcher or ssh, in eight allocations with one GPU each. This
# suits programs that read rank and address from the environment, such as PyTorch's
# init_process_group("nccl").
job "nccl" {
  type = "batch"

  constraint {
    attribute = "${meta.pal_gate}"
    value     = "waiting in nomad-pal's queue (type: nomad-pal explain JOB)"
  }

  meta {
    pal_class    = "B"
    pal_locality = "rack" # never across racks, even if the job has to wait
  }

  group "ranks" {
    count = 8

    network {
      port "rendezvous" {}
    }

    restart {
      attempts = 0
      mode     = "fail"
    }

    reschedule {
      attempts = 0
    }

    service {
      name     = "nccl"
      port     = "rendezvous"
      provider = "nomad"
      tags     = ["rank-${NOMAD_ALLOC_INDEX}"]
    }

    task "rank" {
      driver = "docker"

      config {
        image        = "nvcr.io/nvidia/pytorch:25.10-py3"
        command      = "bash"
        args         = ["${NOMAD_TASK_DIR}/start.sh"]
        network_mode = "host" # NCCL connects every rank with every other rank
        ipc_mode     = "host" # ranks on the same node share memory; Nomad's docker plugin must allow this mode

        ulimit {
          memlock = "-1"
        }
      }

      env {
        RANK       = "${NOMAD_ALLOC_INDEX}"
        LOCAL_RANK = "0" # each rank sees only its own GPU
        WORLD_SIZE = "8"
      }

      # Rank 0's address. torchrun.nomad.hcl explains why this template finds it.
      template {
        destination = "local/rank-0.env"
        change_mode = "noop"
        data        = <<-EOT
          {{ range nomadService "rank-0.nccl" }}
          export MASTER_ADDR={{ .Address }}
          export MASTER_PORT={{ .Port }}
          {{ end }}
        EOT
      }

      template {
        destination = "local/start.sh"
        data        = <<-EOT
          until . "$NOMAD_TASK_DIR/rank-0.env" && [ -n "$MASTER_PORT" ]; do sleep 1; done
          exec python train.py
        EOT
      }

      resources {
        cpu    = 4000
        memory = 16384

        device "nvidia/gpu" {
          count = 1
        }
      }
    }
  }
}
