# Requests as many GPUs as the playground has V100s. A gang runs on one GPU model, so it waits for all of them.
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
