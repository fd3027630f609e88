#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| omniheap_fuzz::read_frames(data, omniheap_fuzz::arbiter::frames));
