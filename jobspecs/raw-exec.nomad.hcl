# A gang for a first try, without docker and images. Each of its two allocations prints its GPU. The
# clients must allow the raw_exec driver.
#
#   nomad-pal run raw-exec.nomad.hcl
#   nomad-pal explain raw-exec
#   nomad alloc logs -job raw-exec
job "raw-exec" {
  type = "batch"

  constraint {
    attribute = "${meta.pal_gate}"
    value     = "waiting in nomad-pal's queue (type: nomad-pal explain JOB)"
  }

  meta {
    pal_class    = "A"
    pal_duration = "1m"
  }

  group "workers" {
    count = 2

    task "main" {
      driver = "raw_exec"

      # raw_exec hides no GPUs, so the program itself must use only its own.
      config {
        command = "/bin/sh"
        args    = ["-c", "export CUDA_VISIBLE_DEVICES=$NVIDIA_VISIBLE_DEVICES; echo rank $NOMAD_ALLOC_INDEX has GPU $CUDA_VISIBLE_DEVICES; sleep 20"]
      }

      resources {
        cpu    = 100
        memory = 64

        device "nvidia/gpu" {
          count = 1
        }
      }
    }
  }
}
