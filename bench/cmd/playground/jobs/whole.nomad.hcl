# Wants every V100 of the playground: a gang runs on one GPU model.
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
