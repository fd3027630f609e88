//! Functions that HIP links to and this stand-in does not have: images, other processes, other drivers.
//!
//! Each answers an error and says so on standard error, so that a test that needs one does not pass by accident.

#![expect(unsafe_code, reason = "exports C symbols")]

use crate::abi::Status;

macro_rules! absent {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> Status {
            eprintln!(concat!("[hsa stand-in] ", stringify!($name), " is not there"));
            Status::ERROR
        }
    )*};
}

absent! {
    hsa_amd_ais_file_read
    hsa_amd_ais_file_write
    hsa_amd_image_create
    hsa_amd_interop_map_buffer
    hsa_amd_interop_unmap_buffer
    hsa_amd_ipc_memory_attach
    hsa_amd_ipc_memory_create
    hsa_amd_ipc_memory_detach
    hsa_amd_portable_export_dmabuf
    hsa_ext_image_create
    hsa_ext_image_create_with_layout
    hsa_ext_image_data_get_info
    hsa_ext_image_destroy
    hsa_ext_image_export
    hsa_ext_image_import
    hsa_ext_sampler_create
    hsa_ext_sampler_create_v2
    hsa_ext_sampler_destroy
}
