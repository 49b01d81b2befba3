# A notebook with its own GPU. It waits in the queue like any job. nomad-pal stops it for other
# jobs only if the agent's configuration (default_preempt) allows this. To prevent it, set
# pal_preempt = "false". Jupyter stops kernels after an idle
# hour, and exits an hour after it has stopped the last kernel.
#
#   nomad-pal run notebook.nomad.hcl           # prints the address when the notebook runs
#   nomad alloc logs -stderr -job notebook     # the address with Jupyter's token
#   nomad-pal cancel notebook                  # gives the GPU back
job "notebook" {
  type = "batch"

  constraint {
    attribute = "${meta.pal_gate}"
    value     = "waiting in nomad-pal's queue (type: nomad-pal explain JOB)"
  }

  meta {
    pal_class      = "B"
    pal_duration   = "8h"
    pal_on_failure = "none" # if Jupyter fails, nomad-pal does not start it again, because the kernels are lost
  }

  group "notebook" {
    restart {
      attempts = 0
      mode     = "fail"
    }

    network {
      port "http" {}
    }

    service {
      name     = "notebook"
      port     = "http"
      provider = "nomad"
    }

    task "jupyter" {
      driver = "docker"

      config {
        image   = "nvcr.io/nvidia/pytorch:25.10-py3"
        command = "jupyter"
        args = [
          "lab", "--ip=0.0.0.0", "--port=${NOMAD_PORT_http}", "--no-browser", "--allow-root",
          "--MappingKernelManager.cull_idle_timeout=3600",
          "--ServerApp.shutdown_no_activity_timeout=3600",
        ]
        ports    = ["http"]
        shm_size = 2147483648 # 2 GiB
      }

      resources {
        cpu    = 2000
        memory = 8192

        device "nvidia/gpu" {
          count = 1
        }
      }
    }
  }
}
