# A CSI volume, where no node has a plugin.
job "csi-volume" {
  type = "batch"
  group "g" {
    volume "models" {
      type            = "csi"
      source          = "models"
      access_mode     = "single-node-writer"
      attachment_mode = "file-system"
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
