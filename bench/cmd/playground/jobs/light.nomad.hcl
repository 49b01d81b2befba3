# One GPU for two minutes. Slow GPUs hardly slow jobs of this class.
job "light" {
  type = "batch"

  meta {
    pal_class    = "D"
    pal_duration = "2m"
  }

  group "workers" {
    task "main" {
      driver = "raw_exec"

      config {
        command = "/bin/sh"
        args    = ["-c", "sleep 120"]
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
