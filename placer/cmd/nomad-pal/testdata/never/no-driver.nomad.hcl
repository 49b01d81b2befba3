# A driver that no node with GPUs has.
job "no-driver" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "podman"
      config {
        command = "true"
      }
      resources {
        device "nvidia/gpu" {
          count = 1
        }
      }
    }
  }
}
