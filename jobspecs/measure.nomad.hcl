# Measures GPUs now, at full power, without nomad-pal's agent. On each client, the task reserves all
# GPUs and sleeps. The device plugin sees NOMAD_PAL_MEASURE and measures the GPUs together, which takes
# two to five minutes. Nomad waits for a client whose GPUs are in use. The plugin needs no access to
# Nomad, but a measure mode other than "off". For all clients with 8 GPUs, or one client with 4:
#
#   nomad job run jobspecs/measure.nomad.hcl
#   nomad job run -var gpus=4 -var nodes=gpu-07 jobspecs/measure.nomad.hcl
#
# nomad-pal gpus shows the results.

variable "gpus" {
  type        = number
  default     = 8
  description = "GPUs of each client. Clients with another number are left out."
}

variable "nodes" {
  type        = string
  default     = ".*"
  description = "Regular expression for the names of the clients."
}

variable "minutes" {
  type        = number
  default     = 7
  description = "How long to hold the GPUs."
}

job "measure" {
  type        = "sysbatch"
  datacenters = ["*"]
  node_pool   = "all"
  priority    = 1 # nearly every other job may take its place

  constraint {
    attribute = "${node.unique.name}"
    operator  = "regexp"
    value     = "^(${var.nodes})$"
  }

  group "gpus" {
    restart {
      attempts = 0
      mode     = "fail"
    }

    task "hold" {
      driver = "raw_exec" # or exec, docker, podman: the task must be a process of the node

      config {
        command = "sleep"
        args    = ["${var.minutes * 60}"]
      }

      env {
        NOMAD_PAL_MEASURE = "1"
      }

      resources {
        cpu    = 10
        memory = 32

        device "nvidia/gpu" {
          count = var.gpus

          constraint {
            attribute = "${device.attr.count}"
            value     = "${var.gpus}"
          }
        }
      }
    }
  }
}
