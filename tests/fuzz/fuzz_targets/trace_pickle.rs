#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| omniheap_fuzz::read_trace(data, omniheap_fuzz::trace::pickle));
