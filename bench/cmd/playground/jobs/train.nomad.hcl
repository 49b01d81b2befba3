# A gang of two members with four GPUs each, for three minutes. Slow GPUs slow jobs of this class.
job "train" {
  type = "batch"

  meta {
    pal_class    = "A"
    pal_duration = "3m"
  }

  group "workers" {
    count = 2

    task "main" {
      driver = "raw_exec"

      config {
        command = "/bin/sh"
        args    = ["-c", "echo $NVIDIA_VISIBLE_DEVICES; sleep 180"]
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
