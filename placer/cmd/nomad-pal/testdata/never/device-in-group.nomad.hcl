# What devices have, in the constraint of a group.
job "device-in-group" {
  type = "batch"
  group "g" {
    constraint {
      attribute = "${device.model}"
      value     = "Tesla V100-SXM2-32GB"
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
