# A job that the placer can stop for other jobs. In return, the job can start as soon as enough
# GPUs are free. It writes a checkpoint every hour, and when Nomad stops it. Its program is
# checkpoint.py: put this file into the working directory of your image. The clients need a host
# volume "shared", on storage that all clients share.
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
    pal_duration   = "12h"  # an estimate of the whole run time; with an estimate, the job can start earlier
    pal_preempt    = "true" # the placer can stop the job for other jobs, and starts it again later
    pal_checkpoint = "1h"   # the time between checkpoints; the placer stops the job soon after a checkpoint
    pal_progress   = "true" # the job reports its progress, so the placer can predict its end
  }

  group "train" {
    count = 1

    # Storage that every node shares, because the job can continue on another node.
    volume "checkpoints" {
      type      = "host"
      source    = "shared"
      read_only = false
    }

    task "train" {
      driver = "docker"

      # Nomad sends SIGTERM, waits for kill_timeout, and then kills the task. Allow enough time to
      # write a checkpoint. The client's max_kill_timeout (30 s by default) must not be shorter.
      kill_signal  = "SIGTERM"
      kill_timeout = "2m"

      config {
        image   = "nvcr.io/nvidia/pytorch:25.10-py3"
        command = "python" # not a shell, because a shell would not forward the signal
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
