# An attribute that is a plain word.
job "plain-word" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "true"
      }
      resources {
        device "gpu" {
          constraint {
            attribute = "Vendor"
            value     = "nvidia"
          }
        }
      }
    }
  }
}
