# A slice of a GPU: one MIG instance with a seventh of an A100's compute units. The plugin lists
# each kind of instance as a separate model. nomad-pal gpus shows the models' names.
job "mig" {
  type = "batch"

  constraint {
    attribute = "${meta.pal_gate}"
    value     = "waiting in nomad-pal's queue (type: nomad-pal explain JOB)"
  }

  group "train" {
    task "train" {
      driver = "docker"

      config {
        image   = "nvcr.io/nvidia/pytorch:25.10-py3"
        command = "python"
        args    = ["train.py"]
      }

      resources {
        cpu    = 2000
        memory = 8192

        device "nvidia/gpu/NVIDIA A100-SXM4-40GB MIG 1g.5gb" {
          count = 1
        }
      }
    }
  }
}
