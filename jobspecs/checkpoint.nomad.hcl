# A job that may be stopped for others: it writes a checkpoint every hour, and when it is stopped.
# In return it may start wherever it fits. checkpoint.py is its program: put it into the working
# directory of your image. The clients need a host volume "shared" on storage that all of them have.
#
#   nomad-pal run checkpoint.nomad.hcl
job "checkpoint" {
  type = "batch"

  constraint {
    attribute = "${meta.pal_gate}"
    value     = "waiting in nomad-pal's queue (type: nomad-pal explain JOB)"
  }

  meta {
    pal_class      = "A"
    pal_duration   = "12h"  # an estimate of the whole run: it wins the job an earlier start
    pal_preempt    = "true" # it may be stopped, and is started again later
    pal_checkpoint = "1h"   # if so, right after a checkpoint
    pal_progress   = "true" # it writes how far it is, so the placer knows when it ends
  }

  group "train" {
    count = 1

    # Storage that every node has: the job may go on elsewhere.
    volume "checkpoints" {
      type      = "host"
      source    = "shared"
      read_only = false
    }

    task "train" {
      driver = "docker"

      # Nomad sends SIGTERM and waits for so long before it kills: as long as it takes to write a
      # checkpoint. The client's max_kill_timeout, 30 s by default, must allow it.
      kill_signal  = "SIGTERM"
      kill_timeout = "2m"

      config {
        image   = "nvcr.io/nvidia/pytorch:25.10-py3"
        command = "python" # not a shell, which would not pass the signal on
        args    = ["checkpoint.py"]
      }

      volume_mount {
        volume      = "checkpoints"
        destination = "/checkpoints"
      }

      env {
        CHECKPOINT       = "/checkpoints/${NOMAD_JOB_ID}.pt"
        CHECKPOINT_EVERY = "3600"
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
