# An array: a hundred dispatched runs of the same job. At most 16 run at a time.
#
#   nomad-pal run array.nomad.hcl
#   for i in $(seq 100); do nomad job dispatch -detach -meta seed=$i array; done
#   nomad-pal queue -all                     # which runs wait, and why
#   nomad-pal cancel array                   # stop the job and all of its runs
#
# The agent's configuration needs nomad { rpc_address }.
job "array" {
  type = "batch"

  constraint {
    attribute = "${meta.pal_gate}"
    value     = "waiting in nomad-pal's queue (type: nomad-pal explain JOB)"
  }

  parameterized {
    payload       = "forbidden"
    meta_required = ["seed"]
  }

  meta {
    pal_array_parallel = "16"
    pal_class          = "A"
    pal_duration       = "40m"
  }

  group "element" {
    count = 1

    task "train" {
      driver = "docker"

      config {
        image   = "nvcr.io/nvidia/pytorch:25.10-py3"
        command = "python"
        args    = ["train.py", "--seed=${NOMAD_META_seed}"]
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
