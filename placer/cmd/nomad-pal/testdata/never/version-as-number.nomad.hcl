# A version that Nomad reads as a number.
job "version-as-number" {
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
            attribute = "${device.attr.driver_version}"
            operator  = ">="
            value     = "550"
          }
        }
      }
    }
  }
}
