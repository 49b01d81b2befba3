# More cores than nodes let reserve.
job "cores" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "true"
      }
      resources {
        cores = 256
        device "nvidia/gpu" {
          count = 1
        }
      }
    }
  }
}
