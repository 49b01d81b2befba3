# A job for plain Nomad, without nomad-pal. It uses the variability classes that the device plugin
# publishes for application class A, and gets two GPUs of variability class 1 or 2. Run it with
# nomad job run, because nomad-pal run refuses jobs that constrain ${device.ids}.
#
# Both constraints are needed. The first constraint picks the GPUs. Without the second one, Nomad
# can skip a matching node if another node of the same computed node class does not match.
job "native-class" {
  type = "batch"

  group "train" {
    task "train" {
      driver = "docker"

      config {
        image   = "nvcr.io/nvidia/pytorch:25.10-py3"
        command = "python"
        args    = ["train.py"]
      }

      resources {
        cpu    = 8000
        memory = 32768

        device "nvidia/gpu" {
          count = 2

          constraint {
            attribute = "${device.ids}"
            operator  = "set_contains_any"
            value     = "${device.attr.unique.variability_a_le_2}"
          }

          constraint {
            attribute = "${device.attr.variability_a_le_2_count}"
            operator  = ">="
            value     = "2"
          }
        }
      }
    }
  }
}
