# A gang of two groups: two learners with eight GPUs each, and four actors with one GPU each. It
# starts only when GPUs for all six allocations are free.
job "several-groups" {
  type = "batch"

  constraint {
    attribute = "${meta.pal_gate}"
    value     = "waiting in nomad-pal's queue (type: nomad-pal explain JOB)"
  }

  meta {
    pal_class    = "B"
    pal_locality = "rack" # never across racks, even if the job has to wait
  }

  group "learner" {
    count = 2

    task "learn" {
      driver = "docker"

      config {
        image   = "nvcr.io/nvidia/pytorch:25.10-py3"
        command = "python"
        args    = ["learn.py"]
      }

      resources {
        cpu    = 32000
        memory = 131072

        device "nvidia/gpu" {
          count = 8
        }
      }
    }
  }

  group "actor" {
    count = 4

    task "act" {
      driver = "docker"

      config {
        image   = "nvcr.io/nvidia/pytorch:25.10-py3"
        command = "python"
        args    = ["act.py"]
      }

      resources {
        cpu    = 4000
        memory = 8192

        device "nvidia/gpu" {
          count = 1
        }
      }
    }
  }
}
