# The job of a session of nomad-pal shell. It holds the GPUs until the session ends.
variable "gpus" { default = 1 }
variable "seconds" { default = 7200 }
variable "cpu" { default = 1000 }
variable "memory" { default = 4096 }
variable "node_pool" { default = "default" }
variable "meta" {
  type    = map(string)
  default = {}
}

# How long the job runs on without a heartbeat.
variable "grace" { default = 60 }

job "shell" {
  type        = "batch"
  datacenters = ["*"]
  node_pool   = var.node_pool

  # The placer neither stops nor moves the job, because a session cannot move.
  meta = merge({
    pal_duration   = "${var.seconds}s"
    pal_preempt    = "false"
    pal_migrate    = "false"
    pal_on_failure = "none"
  }, var.meta)

  group "shell" {
    restart {
      attempts = 0
      mode     = "fail"
    }

    reschedule {
      attempts  = 0
      unlimited = false
    }

    task "shell" {
      driver = "exec" # or raw_exec, or docker

      config {
        command = "/bin/sh"
        args = ["-c", <<-EOT
          # Ends at the time limit, or when the session's heartbeats stop. It first ends the
          # processes of the session, because the driver raw_exec does not.
          finish() {
            trap '' TERM INT
            cd /proc || exit 0
            for signal in HUP TERM KILL; do
              for process in [0-9]*; do
                [ "$process" != $$ ] && grep -qs "NOMAD_ALLOC_ID=$NOMAD_ALLOC_ID" "$process/environ" &&
                  kill -$signal "$process" 2> /dev/null
              done
              [ $signal != TERM ] || sleep 1
            done
            exit 0
          }
          trap finish TERM INT
          began=$(date +%s)
          echo "$began" > "$NOMAD_TASK_DIR/heartbeat"
          while sleep 1; do
            now=$(date +%s)
            [ $((now - began)) -lt ${var.seconds} ] || finish
            read -r heard < "$NOMAD_TASK_DIR/heartbeat" || continue # it is being written
            [ $((now - heard)) -lt ${var.grace} ] || finish
          done
        EOT
        ]
      }

      resources {
        cpu    = var.cpu
        memory = var.memory

        device "nvidia/gpu" {
          count = var.gpus
        }
      }
    }
  }
}
