# A version of what is none.
job "version-of-a-name" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "true"
      }
      resources {
        device "nvidia/gpu" {
          constraint {
            attribute = "${device.model}"
            operator  = "version"
            value     = ">= 1.0"
          }
        }
      }
    }
  }
}
