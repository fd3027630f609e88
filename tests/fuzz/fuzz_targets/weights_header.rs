#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| omniheap_fuzz::read_weights(data, omniheap_fuzz::weights::header));
