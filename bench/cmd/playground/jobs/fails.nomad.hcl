# Its first member fails. The placer tries the gang on other GPUs, and then gives it up.
job "fails" {
  type = "batch"

  meta {
    pal_class   = "A"
    pal_preempt = "true" # so that it does not wait for whole, which has a reservation
  }

  group "workers" {
    count = 2

    restart {
      attempts = 0
      mode     = "fail"
    }

    reschedule {
      attempts  = 0
      unlimited = false
    }

    task "main" {
      driver = "raw_exec"

      config {
        command = "/bin/sh"
        args    = ["-c", "sleep 2; [ $NOMAD_ALLOC_INDEX = 0 ] && exit 3; sleep 600"]
      }

      resources {
        cpu    = 10
        memory = 32

        device "nvidia/gpu" {
          count = 1
        }
      }
    }
  }
}
