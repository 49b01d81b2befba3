# Wants every GPU of the playground.
job "whole" {
  type = "batch"

  meta {
    pal_duration = "1m"
  }

  group "workers" {
    count = 4

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
