# Requests more GPUs than the playground has.
job "never" {
  type = "batch"

  meta {
    pal_class = "B"
  }

  group "workers" {
    count = 64

    task "main" {
      driver = "raw_exec"

      config {
        command = "/bin/sh"
        args    = ["-c", "sleep 60"]
      }

      resources {
        cpu    = 10
        memory = 32

        device "nvidia/gpu" {
          count = 4
        }
      }
    }
  }
}
