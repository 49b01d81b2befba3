# A datacenter that does not exist.
job "wrong-datacenter" {
  type = "batch"
  datacenters = ["rotterdam"]
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
      }
    }
  }
}
