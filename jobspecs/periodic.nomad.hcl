# A job that runs every night at three (Berlin time), unless the previous run still waits or runs.
#
#   nomad-pal run periodic.nomad.hcl
#   nomad job periodic force periodic        # run it now
#
# The agent's configuration needs nomad { rpc_address }.
job "periodic" {
  type = "batch"

  constraint {
    attribute = "${meta.pal_gate}"
    value     = "waiting in nomad-pal's queue (type: nomad-pal explain JOB)"
  }

  periodic {
    crons            = ["0 3 * * *"]
    time_zone        = "Europe/Berlin"
    prohibit_overlap = true
  }

  meta {
    pal_class    = "B"
    pal_duration = "30m"
  }

  group "evaluate" {
    task "evaluate" {
      driver = "docker"

      config {
        image   = "nvcr.io/nvidia/pytorch:25.10-py3"
        command = "python"
        args    = ["evaluate.py"]
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
