# What nodes have, in the constraint of a device.
job "node-in-device" {
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
            attribute = "${attr.kernel.name}"
            value     = "linux"
          }
        }
      }
    }
  }
}
