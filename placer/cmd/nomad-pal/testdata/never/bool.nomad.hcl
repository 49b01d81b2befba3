# true or false as a word.
job "bool" {
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
            attribute = "${device.attr.ecc}"
            value     = "enabled"
          }
        }
      }
    }
  }
}
