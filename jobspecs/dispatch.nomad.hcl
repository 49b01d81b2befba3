# A job with parameters. Each dispatch runs the job once, with its own meta.
#
#   nomad-pal run dispatch.nomad.hcl
#   nomad job dispatch -meta dataset=s3://data/2026-11 dispatch
#   nomad-pal queue                          # the run is "dispatch/dispatch-…"
#
# The agent's configuration needs nomad { rpc_address }. Runs that are dispatched with a payload
# stay gated, so use meta.
job "dispatch" {
  type = "batch"

  constraint {
    attribute = "${meta.pal_gate}"
    value     = "waiting in nomad-pal's queue (type: nomad-pal explain JOB)"
  }

  parameterized {
    payload       = "forbidden"
    meta_required = ["dataset"]
    meta_optional = ["epochs"]
  }

  meta {
    pal_class    = "A"
    pal_duration = "2h"
    epochs       = "10" # the default
  }

  group "train" {
    task "train" {
      driver = "docker"

      config {
        image   = "nvcr.io/nvidia/pytorch:25.10-py3"
        command = "python"
        args    = ["train.py", "--dataset=${NOMAD_META_dataset}", "--epochs=${NOMAD_META_epochs}"]
      }

      resources {
        cpu    = 8000
        memory = 32768

        device "nvidia/gpu" {
          count = 2
        }
      }
    }
  }
}
