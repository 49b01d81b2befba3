# A gang: four allocations with eight GPUs each. They start together or not at
# all, on nodes close together, away from slow GPUs. The ranks find each other
# through Nomad services.
#
#   nomad-pal plan gang.nomad.hcl            # where it would run now, and why
#   nomad-pal run gang.nomad.hcl
#   nomad-pal explain gang
job "gang" {
  type = "batch"

  constraint {
    attribute = "${meta.pal_gate}"
    value     = "open"
  }

  meta {
    pal_class    = "A"
    pal_duration = "6h"   # an estimate: everybody waits less
    pal_preempt  = "true" # it checkpoints, so it may be stopped and started again
  }

  group "ranks" {
    count = 4

    network {
      port "rendezvous" {}
    }

    # A rank without its peers is useless: let the placer start the whole gang
    # again.
    restart {
      attempts = 0
      mode     = "fail"
    }

    service {
      name     = "gang-rendezvous"
      port     = "rendezvous"
      provider = "nomad"
    }

    task "rank" {
      driver = "docker"

      config {
        image   = "nvcr.io/nvidia/pytorch:25.10-py3"
        command = "torchrun"
        args = [
          "--nnodes=4",
          "--nproc-per-node=8",
          "--rdzv-backend=c10d",
          "--rdzv-id=${NOMAD_JOB_ID}",
          "--rdzv-endpoint=${RENDEZVOUS}",
          "train.py",
        ]
      }

      # All ranks meet at the first allocation's port.
      template {
        destination = "local/rendezvous.env"
        env         = true
        data        = <<-EOT
          {{ with nomadService 1 "rendezvous" "gang-rendezvous" }}{{ with index . 0 }}RENDEZVOUS={{ .Address }}:{{ .Port }}{{ end }}{{ end }}
        EOT
      }

      resources {
        cpu    = 32000
        memory = 131072

        device "nvidia/gpu" {
          count = 8
        }
      }
    }
  }
}
