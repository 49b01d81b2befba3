# One model in two blocks.
job "two-blocks" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "true"
      }
      resources {
        device "nvidia/gpu" {
          count = 1
        }
        device "nvidia/gpu" {
          count = 2
        }
      }
    }
  }
}
