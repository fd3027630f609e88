struct Object {
    clip: mat4x4<f32>,
    model: mat4x4<f32>,
}

@group(0) @binding(0) var<uniform> object: Object;
@group(1) @binding(0) var image: texture_2d<f32>;
@group(1) @binding(1) var filtered: sampler;

struct Point {
    @builtin(position) position: vec4<f32>,
    @location(0) normal: vec3<f32>,
    @location(1) uv: vec2<f32>,
}

@vertex
fn shape(
    @location(0) position: vec3<f32>,
    @location(1) normal: vec3<f32>,
    @location(2) uv: vec2<f32>,
) -> Point {
    let turned = object.model * vec4<f32>(normal, 0.0);
    return Point(object.clip * vec4<f32>(position, 1.0), turned.xyz, uv);
}

@fragment
fn surface(point: Point) -> @location(0) vec4<f32> {
    let towards_light = normalize(vec3<f32>(0.4, 0.7, 0.6));
    let light = 0.25 + 0.75 * max(dot(normalize(point.normal), towards_light), 0.0);
    return vec4<f32>(textureSample(image, filtered, point.uv).rgb * light, 1.0);
}
