# Distributed training with one allocation for each rank, and one GPU for each allocation. It needs no launcher: rank,
# size and rank 0's address come from Nomad. For a job of your own, change the image and the script.
#
#   cp train.py /mnt/shared/                        # the clients' host volume "shared", on storage that all of them share
#   nomad-pal run ranks.nomad.hcl                   # -var ranks=16: on two nodes of 8 GPUs, if two are free
#   nomad-pal explain ranks
variable "ranks" { default = 4 }
variable "image" { default = "nvcr.io/nvidia/pytorch:25.10-py3" }
variable "script" { default = "/shared/train.py" }
variable "network" { default = "" } # NCCL's and gloo's network interface, such as eth0; "": they choose
variable "hca" { default = "" }     # the nodes' InfiniBand or RoCE devices, such as mlx5; "": NCCL uses TCP

job "ranks" {
  type = "batch"

  constraint {
    attribute = "${meta.pal_gate}"
    value     = "waiting in nomad-pal's queue (type: nomad-pal explain JOB)"
  }

  meta {
    pal_class    = "A"
    pal_duration = "12h"  # an estimate of the whole run time; with an estimate, the job can start earlier
    pal_preempt  = "true" # other jobs can stop the job, which continues later
  }

  group "ranks" {
    count = var.ranks

    # A rank is useless without the others, so Nomad must not restart one alone: nomad-pal starts the whole gang again.
    restart {
      attempts = 0
      mode     = "fail"
    }

    reschedule {
      attempts = 0
    }

    network {
      port "rendezvous" {}
    }

    # Each rank is registered with its number, from 0 to count - 1, wherever it runs.
    service {
      name     = "${NOMAD_JOB_NAME}"
      port     = "rendezvous"
      provider = "nomad"
      tags     = ["rank-${NOMAD_ALLOC_INDEX}"]
    }

    volume "shared" {
      type   = "host"
      source = "shared"
    }

    task "rank" {
      driver       = "docker"
      kill_signal  = "SIGTERM"
      kill_timeout = "2m" # to write a checkpoint; the client's max_kill_timeout (30 s by default) is the upper limit

      config {
        image        = var.image
        command      = "bash"
        args         = ["${NOMAD_TASK_DIR}/start.sh"]
        init         = true # without it, a container ignores signals until its program handles them
        network_mode = "host" # each rank connects with each other rank, on ports that NCCL or gloo choose
        ipc_mode     = "host" # ranks of a node share memory; Nomad's docker plugin must allow this mode
        devices      = var.hca == "" ? [] : [{ host_path = "/dev/infiniband" }]

        ulimit {
          memlock = "-1" # RDMA pins memory
        }
      }

      volume_mount {
        volume      = "shared"
        destination = "/shared"
      }

      env {
        RANK               = "${NOMAD_ALLOC_INDEX}"
        LOCAL_RANK         = "0" # a rank sees only its own GPU
        WORLD_SIZE         = var.ranks
        CHECKPOINT         = "/shared/${NOMAD_NAMESPACE}-${NOMAD_JOB_NAME}.pt"
        CHECKPOINT_EVERY   = "3600" # seconds
        NCCL_SOCKET_IFNAME = var.network
        GLOO_SOCKET_IFNAME = var.network
        NCCL_IB_HCA        = var.hca
      }

      # Begins again until rank 0 is registered. "exec": the program gets Nomad's signal, not the shell. Do not use
      # nomadService 1 "key" "name": ranks that start at different times would get different addresses.
      template {
        destination = "local/start.sh"
        change_mode = "noop"
        data        = <<-EOT
          {{ range nomadService (env "NOMAD_JOB_NAME" | printf "rank-0.%s") }}
          export MASTER_ADDR={{ .Address }} MASTER_PORT={{ .Port }}
          {{ end }}
          [ -n "$MASTER_PORT" ] || { sleep 1; exec bash "$0"; }
          exec python ${var.script}
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
