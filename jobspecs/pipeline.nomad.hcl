# The last step of a pipeline. It starts when the jobs "prepare" (without GPUs) and "train" have
# completed successfully.
#
#   nomad job run prepare.nomad.hcl
#   nomad-pal run train.nomad.hcl
#   nomad-pal run pipeline.nomad.hcl
#   nomad-pal explain pipeline               # which job it waits for, and that job's state
job "pipeline" {
  type = "batch"

  constraint {
    attribute = "${meta.pal_gate}"
    value     = "waiting in nomad-pal's queue (type: nomad-pal explain JOB)"
  }

  meta {
    pal_after    = "prepare,train"
    pal_duration = "1h"
  }

  group "evaluate" {
    count = 1

    task "evaluate" {
      driver = "docker"

      config {
        image   = "nvcr.io/nvidia/pytorch:25.10-py3"
        command = "python"
        args    = ["evaluate.py"]
      }

      resources {
        cpu    = 8000
        memory = 32768

        device "nvidia/gpu" {
          count = 4
        }
      }
    }
  }
}
