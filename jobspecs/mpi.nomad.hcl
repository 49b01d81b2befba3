# Open MPI without ssh: one allocation for each node; node 0 runs mpirun, which starts its daemon on the other nodes
# through files on the shared volume. ranks.nomad.hcl explains what is the same there.
#
#   nomad-pal run -var nodes=2 -var gpus=8 mpi.nomad.hcl
variable "nodes" { default = 2 }
variable "gpus" { default = 8 }
variable "image" { default = "nvcr.io/nvidia/pytorch:25.10-py3" }
variable "command" { default = "python /shared/train.py" }
variable "network" { default = "" }
variable "hca" { default = "" }

job "mpi" {
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
      kill_signal  = "SIGUSR1" # mpirun passes this signal on to the ranks; after SIGTERM it kills them within 2 s
      kill_timeout = "2m"

      config {
        image        = var.image
        command      = "bash"
        args         = ["${NOMAD_TASK_DIR}/start.sh"]
        init         = true
        network_mode = "host"
        shm_size     = 17179869184
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

      # mpirun runs "start.sh NODE COMMAND" where it would run "ssh NODE COMMAND".
      template {
        destination = "local/start.sh"
        change_mode = "noop"
        data        = <<-EOT
          {{ range nomadService (env "NOMAD_JOB_NAME" | printf "node-0.%s") }}
          export MASTER_ADDR={{ .Address }} MASTER_PORT={{ .Port }} RUN=/shared/$NOMAD_JOB_NAME.mpi/{{ .AllocID }}
          {{ end }}
          [ -n "$RUN" ] || { sleep 1; exec bash "$0"; }
          mkdir -p "$RUN"
          if [ $# -gt 0 ]; then
            node=$1
            shift
            echo "exec $*" > "$RUN/$node.new"
            exec mv "$RUN/$node.new" "$RUN/$node"
          fi
          if [ "$NOMAD_ALLOC_INDEX" != 0 ]; then
            [ -e "$RUN/node-$NOMAD_ALLOC_INDEX" ] || { sleep 1; exec bash "$0"; }
            exec sh "$RUN/node-$NOMAD_ALLOC_INDEX"
          fi
          hosts=localhost:${var.gpus}
          for i in $(seq $((${var.nodes} - 1))); do hosts=$hosts,node-$i:${var.gpus}; done
          exec mpirun --allow-run-as-root --host "$hosts" --bind-to none --leave-session-attached \
            --mca plm_rsh_agent "bash $0" --mca plm_rsh_no_tree_spawn 1 ${var.command}
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
