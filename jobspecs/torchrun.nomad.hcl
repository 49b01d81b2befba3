# PyTorch's torchrun on several nodes: four allocations with eight GPUs each. They start together or
# not at all, on nodes that are close together, and not on slow GPUs.
#
#   nomad-pal plan torchrun.nomad.hcl        # where it would run now, and why
#   nomad-pal run torchrun.nomad.hcl
#   nomad-pal explain torchrun
job "torchrun" {
  type = "batch"

  constraint {
    attribute = "${meta.pal_gate}"
    value     = "waiting in nomad-pal's queue (type: nomad-pal explain JOB)"
  }

  meta {
    pal_class    = "A"
    pal_duration = "6h"   # an estimate of the run time; with estimates, jobs wait less on average
    pal_preempt  = "true" # the job writes checkpoints, so the placer can stop it and start it again
  }

  group "ranks" {
    count = 4

    network {
      port "rendezvous" {}
    }

    # A rank is useless without its peers, so Nomad must not restart a rank alone. If a rank fails,
    # the placer starts the whole gang again.
    restart {
      attempts = 0
      mode     = "fail"
    }

    reschedule {
      attempts = 0
    }

    # Nomad registers each rank as a service, with the rank's number as a tag. NOMAD_ALLOC_INDEX is
    # 0 to count - 1; a replacement gets the number of the rank that it replaces. A copy of this job
    # needs another service name, here and in the template.
    service {
      name     = "torchrun"
      port     = "rendezvous"
      provider = "nomad"
      tags     = ["rank-${NOMAD_ALLOC_INDEX}"]
    }

    task "rank" {
      driver = "docker"

      config {
        image   = "nvcr.io/nvidia/pytorch:25.10-py3"
        command = "bash"
        args    = ["${NOMAD_TASK_DIR}/start.sh"]

        # NCCL connects every rank with every other rank, on ports that NCCL chooses.
        network_mode = "host"
        shm_size     = 17179869184 # 16 GiB, for data loaders

        ulimit {
          memlock = "-1" # RDMA pins memory
          stack   = "67108864"
        }
      }

      # Rank 0's address, once rank 0 is registered. Do not use nomadService 1 "key" "name" instead:
      # it selects by a hash over the services that exist at the time of the call, so ranks that
      # start at different times get different addresses.
      template {
        destination = "local/rank-0.env"
        change_mode = "noop"
        data        = <<-EOT
          {{ range nomadService "rank-0.torchrun" }}
          MASTER_ADDR={{ .Address }}
          MASTER_PORT={{ .Port }}
          {{ end }}
        EOT
      }

      template {
        destination = "local/start.sh"
        data        = <<-EOT
          until . "$NOMAD_TASK_DIR/rank-0.env" && [ -n "$MASTER_PORT" ]; do sleep 1; done
          exec torchrun --nnodes=4 --node_rank="$NOMAD_ALLOC_INDEX" --nproc_per_node=8 \
            --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT" \
            train.py
        EOT
      }

      resources {
        cpu    = 32000
        memory = 131072

        device "nvidia/gpu" {
          count = 8
        }
      }
    }
  }
}
