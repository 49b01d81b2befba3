# A second device that no node has.
job "second-vendor" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "true"
      }
      resources {
        device "nvidia/gpu" {
          count = 2
        }
        device "amd/fpga" {}
      }
    }
  }
}
