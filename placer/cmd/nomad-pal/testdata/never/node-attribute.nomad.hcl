# An attribute of nodes that none has.
job "node-attribute" {
  type = "batch"
  group "g" {
    constraint {
      attribute = "${attr.kernal.name}"
      value     = "linux"
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
