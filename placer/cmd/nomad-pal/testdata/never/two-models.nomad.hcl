# Two models in one task.
job "two-models" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "true"
      }
      resources {
        device "nvidia/gpu/NVIDIA A100-SXM4-80GB" {
          count = 1
        }
        device "nvidia/gpu/Tesla V100-SXM2-32GB" {
          count = 1
        }
      }
    }
  }
}
