# A regular expression that Nomad reads as a number.
job "pattern-is-a-number" {
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
            operator  = "regexp"
            value     = "100"
          }
        }
      }
    }
  }
}
