"""Distributions over spanning trees and mixtures of tree distributions."""
