# A batch job on one GPU: the best free GPU.
#
#   nomad-pal run single-gpu.nomad.hcl       # adds the gate for you
#   nomad job run single-gpu.nomad.hcl       # also works, because the file has the gate
job "single-gpu" {
  type = "batch"

  # The gate. No node satisfies this constraint, so the job waits until nomad-pal has chosen GPUs.
  constraint {
    attribute = "${meta.pal_gate}"
    value     = "waiting in nomad-pal's queue (type: nomad-pal explain JOB)"
  }

  meta {
    pal_class = "A" # compute-bound, so differences between GPUs matter most
  }

  group "train" {
    task "train" {
      driver = "docker"

      config {
        image   = "nvcr.io/nvidia/pytorch:25.10-py3"
        command = "python"
        args    = ["train.py"]
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
