#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| omniheap_fuzz::read_model(data, omniheap_fuzz::fit::onnx));
