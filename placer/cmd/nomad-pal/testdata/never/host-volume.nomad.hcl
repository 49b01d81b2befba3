# A host volume that no node has.
job "host-volume" {
  type = "batch"
  group "g" {
    volume "models" {
      type   = "host"
      source = "models"
    }
    task "t" {
      driver = "raw_exec"
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
