# NVIDIA's MPS control daemon on each client whose GPUs the device plugin shares with mode = "mps".
# The job is an alternative to the systemd unit device-plugin/deploy/nvidia-mps.service. Clients need
# raw_exec, and a meta in their configuration: client { meta { mps = "true" } }.

variable "command" {
  type        = string
  default     = "/usr/bin/nvidia-cuda-mps-control"
  description = "Path of NVIDIA's program on the nodes."
}

variable "directory" {
  type        = string
  default     = "/run/nvidia-mps"
  description = "The pipe directory, as in the plugin's key sharing { pipe_directory }."
}

job "nvidia-mps" {
  type     = "system"
  priority = 90

  constraint {
    attribute = "${meta.mps}"
    value     = "true"
  }

  group "daemon" {
    restart {
      attempts = 3
      interval = "10m"
      delay    = "15s"
      mode     = "delay"
    }

    task "daemon" {
      driver = "raw_exec"

      config {
        command = "/bin/sh"
        args    = ["-c", "mkdir -p ${var.directory} && exec ${var.command} -f"]
      }

      env {
        CUDA_MPS_PIPE_DIRECTORY = var.directory
        CUDA_MPS_LOG_DIRECTORY  = "${NOMAD_ALLOC_DIR}/logs"
      }

      resources {
        cpu    = 100
        memory = 128
      }
    }
  }
}
