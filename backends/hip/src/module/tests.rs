use super::*;

#[test]
fn only_whole_images_pass() {
    let mut image = vec![0; 200];
    image[..5].copy_from_slice(b"\x7FELF\x02");
    image[0x28] = 72;
    image[0x3A] = 64;
    image[0x3C] = 2;
    let kind = |image: &[u8]| require_whole(image).map_err(|error| error.kind());
    assert_eq!(kind(&image), Ok(()));
    assert_eq!(kind(&image[..199]), Err(ErrorKind::InvalidConfig), "cut off");
    assert_eq!(kind(&image[..40]), Err(ErrorKind::InvalidConfig), "within the header");
    assert_eq!(kind(&[]), Err(ErrorKind::InvalidConfig));
    image[0x28..0x30].fill(0xFF);
    assert_eq!(kind(&image), Err(ErrorKind::InvalidConfig), "an offset that overflows");
    assert_eq!(kind(&[b'/'; 200]), Err(ErrorKind::InvalidConfig), "no image at all");
}

#[test]
fn without_a_compiler_the_error_says_what_to_do() {
    let error = require(None).expect_err("there is none");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    for way_out in ["libhiprtc", "ROCM_PATH", "code object"] {
        assert!(error.log().contains(way_out), "{error}");
    }
}
