"""The wire: V2 and V1 bodies to values and back. Pure functions of bytes; both sides of the wire use them."""

from serving.protocol.codec import (
    EncodedBody,
    decode_infer_request,
    decode_infer_response,
    encode_infer_request,
    encode_infer_response,
    parse_header_length,
)
from serving.protocol.metadata import decode_model_metadata, encode_model_metadata
from serving.protocol.provenance import provenance_headers, provenance_parameters
from serving.protocol.tensors import HEADER_LENGTH
from serving.protocol.v1 import PredictRequest, decode_predict_request, encode_predict_response
from serving.protocol.validate import check_against
from serving.types import (
    InferRequest,
    InferResponse,
    ModelMetadata,
    NamedTensor,
    OutputRequest,
    Parameter,
    TensorSpec,
)

__all__ = [
    "HEADER_LENGTH",
    "EncodedBody",
    "InferRequest",
    "InferResponse",
    "ModelMetadata",
    "NamedTensor",
    "OutputRequest",
    "Parameter",
    "PredictRequest",
    "TensorSpec",
    "check_against",
    "decode_infer_request",
    "decode_infer_response",
    "decode_model_metadata",
    "decode_predict_request",
    "encode_infer_request",
    "encode_infer_response",
    "encode_model_metadata",
    "encode_predict_response",
    "parse_header_length",
    "provenance_headers",
    "provenance_parameters",
]
