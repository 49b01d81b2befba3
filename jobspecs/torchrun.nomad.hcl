# PyTorch's torchrun: one allocation for each node, and one process for each of the node's GPUs. ranks.nomad.hcl
# explains what is the same there.
#
#   nomad-pal plan torchrun.nomad.hcl                           # where would it run now, and why?
#   nomad-pal run -var nodes=2 -var gpus=8 torchrun.nomad.hcl
variable "nodes" { default = 2 }
variable "gpus" { default = 8 }
variable "image" { default = "nvcr.io/nvidia/pytorch:25.10-py3" }
variable "script" { default = "/shared/train.py" }
variable "network" { default = "" }
variable "hca" { default = "" }

job "torchrun" {
  type = "batch"

  constraint {
    attribute = "${meta.pal_gate}"
    value     = "waiting in nomad-pal's queue (type: nomad-pal explain JOB)"
  }

  meta {
    pal_class    = "A"
    pal_duration = "12h"
    pal_preempt  = "true"
  }

  group "nodes" {
    count = var.nodes

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

    service {
      name     = "${NOMAD_JOB_NAME}"
      port     = "rendezvous"
      provider = "nomad"
      tags     = ["node-${NOMAD_ALLOC_INDEX}"]
    }

    volume "shared" {
      type   = "host"
      source = "shared"
    }

    task "node" {
      driver       = "docker"
      kill_signal  = "SIGTERM"
      kill_timeout = "30s" # torchrun passes the signal on, and kills its processes after 30 s

      config {
        image        = var.image
        command      = "bash"
        args         = ["${NOMAD_TASK_DIR}/start.sh"]
        init         = true
        network_mode = "host"
        shm_size     = 17179869184 # 16 GiB, for NCCL and data loaders
        devices      = var.hca == "" ? [] : [{ host_path = "/dev/infiniband" }]

        ulimit {
          memlock = "-1"
          stack   = "67108864"
        }
      }

      volume_mount {
        volume      = "shared"
        destination = "/shared"
      }

      env {
        CHECKPOINT         = "/shared/${NOMAD_NAMESPACE}-${NOMAD_JOB_NAME}.pt"
        CHECKPOINT_EVERY   = "3600"
        NCCL_SOCKET_IFNAME = var.network
        GLOO_SOCKET_IFNAME = var.network
        NCCL_IB_HCA        = var.hca
      }

      template {
        destination = "local/start.sh"
        change_mode = "noop"
        data        = <<-EOT
          {{ range nomadService (env "NOMAD_JOB_NAME" | printf "node-0.%s") }}
          export MASTER_ADDR={{ .Address }} MASTER_PORT={{ .Port }}
          {{ end }}
          [ -n "$MASTER_PORT" ] || { sleep 1; exec bash "$0"; }
          exec torchrun --nnodes=${var.nodes} --node_rank="$NOMAD_ALLOC_INDEX" --nproc_per_node=${var.gpus} \
            --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT" ${var.script}
        EOT
      }

      resources {
        cpu    = 4000 * var.gpus
        memory = 16384 * var.gpus

        device "nvidia/gpu" {
          count = var.gpus
        }
      }
    }
  }
}
